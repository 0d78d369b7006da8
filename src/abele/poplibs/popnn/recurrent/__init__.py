"""Recurrent networks: LSTM, GRU and plain ones, one step per turn of a loop."""
