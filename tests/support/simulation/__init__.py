"""The loader on a simulated cluster or object store: virtual time, random faults, and a judge that knows what each rank
must get.
"""
