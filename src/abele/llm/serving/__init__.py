"""Text over HTTP: a model behind OpenAI's interface, many clients in one batch, and a page to talk to it.

A request walks down these modules: ``guard`` and ``request_body`` look at what comes, ``fields`` and ``calls`` read it,
``worker`` has a thread that drives the generator and feeds of tokens back to the event loop, ``answers`` and
``event_stream`` write what leaves. ``app`` ties them together, ``server`` listens and stops.
"""
