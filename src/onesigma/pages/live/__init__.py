"""``onesigma live``: a sensor's stream through a model, watched in a browser. No PyTorch needed."""
