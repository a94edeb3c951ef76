"""The loader on a simulated cluster or object store: virtual time, random faults, and a judge that knows what each rank
must get. Clients of the dataset service are simulated in the same way.
"""
