"""Stories of the machine-api, told to a Kubernetes API: the lab's, or a real one (`--kube=real`)."""
