def with_functions(model):
    return model
