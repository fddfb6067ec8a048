"""An embedded Kubernetes API: one store, the rules of the API over it, and servers that speak it over TLS.

`store` is the etcd of a cluster, `api` does to objects what an API server does, whoever asks; `server` lets real
clients ask over HTTP. Controllers work on `api` in the same process, so that whole clusters fit into one event loop.
"""
