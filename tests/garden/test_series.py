"""Windows of the series: what is known lies before what is forecast, and the years before see nothing of the last."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("matplotlib", reason="needs matplotlib")

from abele.errors import AbeleError
from abele.garden.series import HISTORY, SEASON, DayWindows, SeriesNetwork, autoregression, daily_trading, error

pytestmark = pytest.mark.torch


def counted(num_days: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    days = np.arange(num_days, dtype=np.float64)
    return days, np.zeros(num_days), days % 5


def test_windows__of_the_years_before__see_no_held_out_day() -> None:
    series = counted(200)
    train, held_out = DayWindows.between(0, 150, *series), DayWindows.between(150, 200, *series)

    def days(windows: DayWindows) -> tuple[np.ndarray, np.ndarray]:
        return (windows.history[:, :, 0] + windows.mean[:, None], windows.future + windows.mean[:, None])

    past, future = days(train)
    assert past.min() == 0
    assert future.max() == 149
    past, future = days(held_out)
    assert (future.min(), future.max()) == (150, 199)
    assert np.allclose(past[:, -1] + 1, future[:, 0])
    assert past.shape == (len(future), HISTORY)


def test_daily_trading__weekday__is_never_saturday_or_sunday() -> None:
    volume, spread, weekday = daily_trading()
    assert set(weekday) == {0.0, 1.0, 2.0, 3.0, 4.0}
    assert np.all(spread > 0)
    assert np.isfinite(volume).all()


def test_daily_trading__data_not_shipped__says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, asfileobj: bool) -> None:
        raise FileNotFoundError(name)

    monkeypatch.setattr("matplotlib.cbook.get_sample_data", missing)
    with pytest.raises(AbeleError, match=r"matplotlib's sample data goog\.npz is not installed"):
        daily_trading()


def test_autoregression__series_that_is_linear__is_forecast() -> None:
    days = np.arange(300.0)
    series = (np.sin(days * 0.7) + 0.3 * np.cos(days * 0.3), np.zeros(300), days % 5)
    train, held_out = DayWindows.between(0, 200, *series), DayWindows.between(200, 300, *series)
    assert error(autoregression(train, held_out), held_out) < 1e-5


def test_series_network__windows__give_a_forecast_of_a_week() -> None:
    assert SeriesNetwork()(torch.rand(3, HISTORY, 4)).shape == (3, SEASON)
