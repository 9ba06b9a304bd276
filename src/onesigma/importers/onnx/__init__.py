"""ONNX files in: from a file to a network with dropout."""
