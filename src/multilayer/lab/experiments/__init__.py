"""The experiments, one file each: claim, settings, measurement, criteria and plot."""
