"""Training jobs: job files, the runner with its agents, and documents for Kubernetes."""
