"""The load client: standard library only, it runs on the host as a zipapp, beside the engine it measures."""
