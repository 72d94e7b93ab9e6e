"""What redblue.onnx finds in a model, and how it fuses it."""
