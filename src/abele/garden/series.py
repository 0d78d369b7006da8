"""A time series: how much of a stock will change hands on each day of the next week?

Five years of daily trading of one stock, which ship with matplotlib. A GRU reads eight weeks and forecasts the
logarithm of the volume of the next five trading days; the last year is held out. (The price itself has nothing that a
model of this size could honestly forecast.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from torch import Tensor, nn, optim
from torch.utils.data import TensorDataset

from abele import poptorch
from abele.arrays import Float32, Float64
from abele.errors import AbeleError
from abele.garden.training import (
    DemoResult,
    DemoSettings,
    HeldOut,
    Predictor,
    Stopwatch,
    Training,
    WithLoss,
    options,
    weights_digest,
)

SEASON = 5
"""Trading days of a week: how far the forecast reaches, and what the seasonal-naive forecast repeats."""
HISTORY = 8 * SEASON
HELD_OUT_DAYS = 252
WIDTH = 32
BATCH = 32
DEVICE_ITERATIONS = 4
EPOCHS = 30
LEARNING_RATE = 2e-3
WEIGHT_DECAY = 1e-2


def daily_trading() -> tuple[Float64, Float64, Float64]:
    """Logarithms of volume and of the day's highest over its lowest price, and the day of the week, each [num_days].

    Raises:
        AbeleError: This matplotlib does not ship the data.
    """
    from matplotlib import cbook

    try:
        days = np.load(str(cbook.get_sample_data("goog.npz", asfileobj=False)))["price_data"]
    except OSError as error:
        raise AbeleError(
            "matplotlib's sample data goog.npz is not installed", remedy="pip install 'abele[demo]'"
        ) from error
    weekday = (days["date"].astype("datetime64[D]").view("int64") + 3) % 7  # the first day of all was a Thursday
    return np.log(days["volume"].astype(np.float64)), np.log(days["high"] / days["low"]), weekday.astype(np.float64)


@dataclass(frozen=True)
class DayWindows:
    """Stretches of the series with what followed them.

    Attributes:
        history: Known days, [num_windows, HISTORY, num_features]: volume less its mean over the window, range of
            the price, days of the week as sine and cosine.
        future: Logarithm of the volume that followed, less the same mean, [num_windows, SEASON].
        mean: That mean, [num_windows].
    """

    history: Float32
    future: Float32
    mean: Float64

    @classmethod
    def between(cls, first: int, last: int, volume: Float64, spread: Float64, weekday: Float64) -> DayWindows:
        """All windows whose forecast days lie in [first, last)."""
        starts = np.arange(max(first, HISTORY), last - SEASON + 1)
        days = starts[:, None] + np.arange(-HISTORY, SEASON)
        mean = volume[days[:, :HISTORY]].mean(axis=1)
        past = days[:, :HISTORY]
        angle = weekday[past] * (2 * np.pi / SEASON)
        features = (volume[past] - mean[:, None], 10.0 * spread[past], np.sin(angle), np.cos(angle))
        future = volume[days[:, HISTORY:]] - mean[:, None]
        return cls(np.stack(features, axis=2).astype(np.float32), future.astype(np.float32), mean)


class SeriesNetwork(nn.Module):
    """A GRU over the days, and a forecast from its last state beside the last week repeated.

    Args:
        num_features: Figures of a day.
        width: Length of the state.
    """

    def __init__(self, num_features: int = 4, width: int = WIDTH) -> None:
        super().__init__()
        self.recurrent = nn.GRU(num_features, width, batch_first=True)
        self.dropout = nn.Dropout(0.2)
        self.forecast = nn.Linear(width, SEASON)
        self.repeated = nn.Linear(SEASON, SEASON)

    def forward(self, history: Tensor) -> Tensor:
        """Volumes of the next days, [batch, SEASON], from days [batch, HISTORY, num_features]."""
        states, _ = self.recurrent(history)
        volume: Tensor = self.forecast(self.dropout(states[:, -1])) + self.repeated(history[:, -SEASON:, 0])
        return volume


def autoregression(train: DayWindows, held_out: DayWindows) -> Float64:
    """Forecast of a linear model of the same windows' volumes, by least squares."""

    def rows(windows: DayWindows) -> Float64:
        past = windows.history[:, :, 0].astype(np.float64)
        return np.concatenate([past, np.ones((len(past), 1))], axis=1)

    weights = np.linalg.lstsq(rows(train), train.future.astype(np.float64), rcond=None)[0]
    forecast: Float64 = rows(held_out) @ weights
    return forecast


def run(settings: DemoSettings, console: Console) -> DemoResult:
    """Train on the years before, forecast the last one, and report; progress goes to ``console``."""
    watch = Stopwatch()
    opts = options(settings).deviceIterations(DEVICE_ITERATIONS)
    with watch.measure("data"):
        trading = daily_trading()
        num_days = len(trading[0])
        train = DayWindows.between(0, num_days - HELD_OUT_DAYS, *trading)
        held_out = DayWindows.between(num_days - HELD_OUT_DAYS, num_days, *trading)
        train_set = TensorDataset(torch.from_numpy(train.history), torch.from_numpy(train.future))
        data = poptorch.DataLoader(opts, train_set, batch_size=BATCH, shuffle=True, drop_last=True)

    model = SeriesNetwork()
    optimizer = optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    epochs = settings.epochs or EPOCHS
    training = Training(data=data, options=opts, epochs=epochs)
    trained = training.run(WithLoss(model, nn.L1Loss()), optimizer, watch, console)
    with watch.measure("validate"):
        predict = Predictor(model, options(settings), len(held_out.history))
        forecast = predict(torch.from_numpy(held_out.history)).double().numpy()
        figure = HeldOut(
            measure="mean absolute error",
            value=error(forecast, held_out),
            beside={
                "seasonal naive": error(held_out.history[:, -SEASON:, 0], held_out),
                "last day": error(held_out.history[:, -1:, 0], held_out),
                "linear autoregression": error(autoregression(train, held_out), held_out),
            },
            on=f"{len(held_out.mean)} held-out weeks, of the logarithm of the volume",
        )
    return DemoResult(
        name="series",
        note="real trading days (matplotlib's goog.npz), real training on this host; machine figures are modelled",
        figures={
            "held_out_error": figure.value,
            "held_out_samples": len(held_out.mean),
            "training_samples": len(train.mean),
            "loss": trained.loss,
            "epochs": epochs,
            "weights_sha256": weights_digest(model),
        },
        seconds=watch.seconds,
        report=trained.report.with_meta(name="series training", sample_name="weeks", step_name="weight update"),
        held_out=(figure,),
        exhibit=last_weeks(forecast, held_out),
    )


def error(forecast: npt.NDArray[np.floating], windows: DayWindows) -> float:
    """Mean absolute error over all windows and days."""
    return float(np.abs(forecast.astype(np.float64) - windows.future).mean())


def last_weeks(forecast: Float64, windows: DayWindows, num_weeks: int = 3) -> str:
    """Millions of shares on each day of the last weeks: traded, forecast, and of the week before."""
    lines = []
    for window in range(len(forecast) - 1 - (num_weeks - 1) * SEASON, len(forecast), SEASON):
        rows = (
            ("traded", windows.future[window]),
            ("forecast", forecast[window]),
            ("week before", windows.history[window, -SEASON:, 0]),
        )
        for name, values in rows:
            millions = np.exp(values.astype(np.float64) + windows.mean[window]) / 1e6
            lines.append(f"{name:<12}" + "".join(f"{value:8.1f}" for value in millions))
        lines.append("")
    return "\n".join(["millions of shares a day, the last weeks", *lines[:-1]])
