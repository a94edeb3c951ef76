"""Training scripts for torchrun. Nothing is here yet; `demo/train.py` shows a training loop."""
