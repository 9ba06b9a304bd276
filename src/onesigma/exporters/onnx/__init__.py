"""ONNX files out."""
