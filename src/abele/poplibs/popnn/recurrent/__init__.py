"""Recurrent networks: LSTM, GRU and plain ones, one step a turn of a loop."""
