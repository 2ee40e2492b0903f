"""ONNX to a Program: import, passes, schedule, allocation, emission."""
