"""The network without PyTorch: its graphs in ONNX, built from a configuration and weights, and run by onnxruntime."""
