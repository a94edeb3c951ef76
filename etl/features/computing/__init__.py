"""Computing features of images: built-in functions, your own ones, ONNX models, and the tasks that call them."""
