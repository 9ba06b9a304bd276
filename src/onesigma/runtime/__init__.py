"""Run what ``onesigma.export`` wrote with numpy and onnxruntime alone: no PyTorch is imported."""

from onesigma.runtime.model import Model, Prediction, load

__all__ = ["Model", "Prediction", "load"]
