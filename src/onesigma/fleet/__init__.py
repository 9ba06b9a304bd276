"""Years of recordings, scored on the engines people run: Ray Data and Spark. No PyTorch here."""

from onesigma.fleet.score import score
from onesigma.fleet.scorer import Scorer
from onesigma.fleet.spark import spark_udf
from onesigma.fleet.summary import Summary

__all__ = ["Scorer", "Summary", "score", "spark_udf"]
