"""ONNX networks on FPGAs."""
