"""Figures, as ratios measured side by side: `make bench`, one part with ARGS='routed'. Knows
nothing of how the product works inside; nothing here fails for being slow."""
