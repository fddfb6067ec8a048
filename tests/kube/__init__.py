"""How a Kubernetes API behaves, told once: the same stories run on the lab's API and on a real kube-apiserver."""
