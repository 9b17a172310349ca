"""Networks that draft from the target's hidden states: EAGLE-1/2, EAGLE-3, Medusa."""
