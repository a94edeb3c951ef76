"""Tables of earlier versions are brought into the current form, by `imagestrata migrate`."""
