"""The public address of the consumer: `Predictor` and what it takes and gives; the code is in `calib.coefficients`."""

from calib.coefficients import Codes, Correction, Points, Prediction, Predictor, load_released

__all__ = ["Codes", "Correction", "Points", "Prediction", "Predictor", "load_released"]
