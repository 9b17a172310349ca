"""The REST face: FastAPI, one router for each resource."""
