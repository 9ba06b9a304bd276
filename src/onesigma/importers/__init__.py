"""Where a model comes from if it is no PyTorch module: ONNX files, Keras models."""
