"""Where calib meets other tools: the engine-replay boundary and the qualification of a model's pp = 1 prediction."""
