"""The loader on a simulated cluster: virtual time, random faults, and a judge that knows what each rank must get."""
