"""Pictures of figures, readable at the width of a README and by the colour-blind."""
