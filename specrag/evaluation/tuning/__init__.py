"""Finding the drafter and the settings that fit a machine, a model and a user's own prompts."""
