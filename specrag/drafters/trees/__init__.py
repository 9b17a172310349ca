"""The shapes of draft trees: fixed, grown by confidence, merged."""
