"""Reading draft heads of public formats: found, recognised, checked, and proven on a target."""
