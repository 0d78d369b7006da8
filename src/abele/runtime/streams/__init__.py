"""Host streams: their connections, and the threads that fetch ahead for them."""
