"""Token datastores on disk: built, checked and looked up."""
