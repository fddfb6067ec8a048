# shellcheck shell=bash
# The stages that make the cluster's first manifests: each operator of the payload renders its own.
#
# All run in /opt/openshift, which their containers see as /assets. What they make goes to a folder of the stage's
# name; what others need is then published to manifests (created in the cluster), bootstrap-manifests (static pods of
# the bootstrap control plane), tls, or /etc/kubernetes.

INFRASTRUCTURE=/assets/manifests/cluster-infrastructure-02-config.yml
NETWORK=/assets/manifests/cluster-network-02-config.yml

# publish FROM TO: everything in a folder that must not be empty.
publish() {
    [[ -n "$(ls --almost-all "$1" 2>/dev/null)" ]] || fail "nothing was rendered to $1"
    mkdir --parents "$2"
    cp --recursive "$1/." "$2/"
}

# publish_any FROM TO: everything in a folder that may be empty or absent.
publish_any() {
    if [[ -n "$(ls --almost-all "$1" 2>/dev/null)" ]]; then
        publish "$1" "$2"
    fi
}

# start_static_pods FILE...: the kubelet watches the folder, and skips hidden files: so each appears there complete.
start_static_pods() {
    local file name
    for file in "$@"; do
        name="${file##*/}"
        write_file "${KUBERNETES}/manifests/${name}" <"${file}"
    done
}

collect_manifests() {
    mkdir --parents bootstrap-manifests "${KUBERNETES}"/{manifests,bootstrap-configs,bootstrap-manifests}
    publish openshift manifests
}

# The payload's versions, asked through the user's mirrors where there are any.
read_release() {
    local mirrors=() image content
    if [[ -f manifests/image-content-source-policy.yaml ]]; then
        mirrors=("--icsp-file=${OPENSHIFT}/manifests/image-content-source-policy.yaml")
    elif [[ -f manifests/image-digest-mirror-set.yaml ]]; then
        mirrors=("--idms-file=${OPENSHIFT}/manifests/image-digest-mirror-set.yaml")
    fi
    save_image_references
    image=$(release_image)
    content=$(oc adm release info --output=json "${mirrors[@]}" "${image}")
    jq '{version: .metadata.version, kubernetes: .displayVersions.kubernetes.Version}' <<<"${content}" |
        write_file "${OPENSHIFT}/release.json"
}

payload_version() {
    jq --raw-output --exit-status .version release.json
}

kubernetes_version() {
    jq --raw-output --exit-status .kubernetes release.json
}

render_api() {
    local version
    version=$(payload_version)
    payload api-render cluster-config-api /usr/bin/render \
        --asset-output-dir=/assets/api-bootstrap \
        --rendered-manifest-dir=/assets/manifests \
        --cluster-profile="${MOORAGE_CLUSTER_PROFILE}" \
        --payload-version="${version}"
    publish api-bootstrap/manifests manifests
}

# Without the authentication operator's API, admission refuses the first role bindings.
render_auth_api() {
    local version
    version=$(payload_version)
    payload auth-api-render cluster-authentication-operator render \
        --asset-output-dir=/assets/auth-api-bootstrap/manifests \
        --rendered-manifest-dir=/assets/manifests \
        --cluster-profile="${MOORAGE_CLUSTER_PROFILE}" \
        --payload-version="${version}"
    publish auth-api-bootstrap/manifests manifests
}

render_config() {
    local version cloud=()
    version=$(payload_version)
    if [[ -f manifests/cloud-provider-config.yaml ]]; then
        cloud=(--cloud-provider-config-input-file=/assets/manifests/cloud-provider-config.yaml)
    fi
    payload config-render cluster-config-operator /usr/bin/cluster-config-operator render \
        --skip-api-rendering \
        --cluster-infrastructure-input-file="${INFRASTRUCTURE}" \
        --cloud-provider-config-output-file=/assets/config-bootstrap/cloud-provider-config-generated.yaml \
        --config-output-file=/assets/config-bootstrap/config \
        --asset-input-dir=/assets/tls \
        --asset-output-dir=/assets/config-bootstrap \
        --rendered-manifest-files=/assets/manifests \
        --payload-version="${version}" \
        "${cloud[@]}"
}

render_cvo() {
    local image flags
    image=$(release_image)
    read -r -a flags <<<"${MOORAGE_CVO_FLAGS}"
    payload --env=CLUSTER_PROFILE="${MOORAGE_CLUSTER_PROFILE}" cvo-render release render \
        --output-dir=/assets/cvo-bootstrap \
        --release-image="${image}" \
        "${flags[@]}"
    publish cvo-bootstrap/bootstrap bootstrap-manifests
    publish cvo-bootstrap/manifests manifests
    # The version operator's static pod reads its kubeconfig from the host.
    write_file "${KUBERNETES}/kubeconfig" 0600 <auth/kubeconfig-loopback
}

render_etcd() {
    local image
    image=$(image_for etcd)
    payload etcd-render cluster-etcd-operator /usr/bin/cluster-etcd-operator render \
        --asset-output-dir=/assets/etcd-bootstrap \
        --cluster-configmap-file=/assets/manifests/cluster-config.yaml \
        --etcd-image="${image}" \
        --infra-config-file="${INFRASTRUCTURE}" \
        --network-config-file="${NETWORK}"
    publish etcd-bootstrap/tls tls
    publish etcd-bootstrap/manifests manifests
    start_etcd etcd-bootstrap/etc-kubernetes
}

# start_etcd FOLDER: what belongs in /etc/kubernetes, the pod after the certificates and scripts that it mounts.
start_etcd() {
    local folder
    for folder in "$1"/*/; do
        if [[ "${folder}" != "$1/manifests/" ]]; then
            publish "${folder%/}" "${KUBERNETES}/$(basename "${folder}")"
        fi
    done
    start_static_pods "$1/manifests"/*
}

render_kube_apiserver() {
    local version operand hyperkube operator
    version=$(payload_version)
    operand=$(kubernetes_version)
    hyperkube=$(image_for hyperkube)
    operator=$(image_for cluster-kube-apiserver-operator)
    payload kube-apiserver-render cluster-kube-apiserver-operator /usr/bin/cluster-kube-apiserver-operator render \
        --manifest-etcd-serving-ca=etcd-ca-bundle.crt \
        --manifest-etcd-server-urls=https://localhost:2379 \
        --manifest-image="${hyperkube}" \
        --manifest-operator-image="${operator}" \
        --asset-input-dir=/assets/tls \
        --asset-output-dir=/assets/kube-apiserver-bootstrap \
        --config-output-file=/assets/kube-apiserver-bootstrap/config \
        --cluster-config-file="${NETWORK}" \
        --cluster-auth-file=/assets/manifests/cluster-authentication-02-config.yaml \
        --infra-config-file="${INFRASTRUCTURE}" \
        --rendered-manifest-files=/assets/manifests \
        --payload-version="${version}" \
        --operand-kubernetes-version="${operand}"
    cp kube-apiserver-bootstrap/config "${KUBERNETES}/bootstrap-configs/kube-apiserver-config.yaml"
    publish kube-apiserver-bootstrap/bootstrap-manifests bootstrap-manifests
    publish kube-apiserver-bootstrap/manifests manifests
}

render_kube_controller_manager() {
    local version hyperkube policy
    version=$(payload_version)
    hyperkube=$(image_for hyperkube)
    policy=$(image_for cluster-policy-controller)
    payload kube-controller-manager-render cluster-kube-controller-manager-operator \
        /usr/bin/cluster-kube-controller-manager-operator render \
        --cluster-policy-controller-image="${policy}" \
        --manifest-image="${hyperkube}" \
        --asset-input-dir=/assets/tls \
        --asset-output-dir=/assets/kube-controller-manager-bootstrap \
        --config-output-file=/assets/kube-controller-manager-bootstrap/config \
        --cpc-config-output-file=/assets/kube-controller-manager-bootstrap/cpc-config \
        --cluster-config-file="${NETWORK}" \
        --rendered-manifest-files=/assets/manifests \
        --payload-version="${version}"
    local configs="${KUBERNETES}/bootstrap-configs"
    cp kube-controller-manager-bootstrap/config "${configs}/kube-controller-manager-config.yaml"
    cp kube-controller-manager-bootstrap/cpc-config "${configs}/cluster-policy-controller-config.yaml"
    publish kube-controller-manager-bootstrap/bootstrap-manifests bootstrap-manifests
    publish kube-controller-manager-bootstrap/manifests manifests
    # Some releases make the service accounts' signing keys here instead of taking the installer's.
    publish_any kube-controller-manager-bootstrap/tls tls
}

render_kube_scheduler() {
    local hyperkube
    hyperkube=$(image_for hyperkube)
    payload kube-scheduler-render cluster-kube-scheduler-operator /usr/bin/cluster-kube-scheduler-operator render \
        --manifest-image="${hyperkube}" \
        --asset-input-dir=/assets/tls \
        --asset-output-dir=/assets/kube-scheduler-bootstrap \
        --config-output-file=/assets/kube-scheduler-bootstrap/config
    cp kube-scheduler-bootstrap/config "${KUBERNETES}/bootstrap-configs/kube-scheduler-config.yaml"
    publish kube-scheduler-bootstrap/bootstrap-manifests bootstrap-manifests
    publish kube-scheduler-bootstrap/manifests manifests
}

render_ingress() {
    payload ingress-render cluster-ingress-operator render \
        --prefix=cluster-ingress- \
        --output-dir=/assets/ingress-operator-bootstrap
    publish ingress-operator-bootstrap manifests
}

render_node_tuning() {
    payload node-tuning-render cluster-node-tuning-operator render \
        --asset-input-dir=/assets/manifests \
        --asset-output-dir=/assets/node-tuning-bootstrap
    publish_any node-tuning-bootstrap manifests
}

render_machine_config() {
    local version image cloud=()
    version=$(payload_version)
    image=$(release_image)
    if [[ -f tls/cloud-ca-cert.pem ]]; then
        cloud+=(--cloud-provider-ca-file=/assets/tls/cloud-ca-cert.pem)
    fi
    if [[ -f manifests/cloud-provider-config.yaml ]]; then
        cloud+=(--cloud-config-file=/assets/config-bootstrap/cloud-provider-config-generated.yaml)
    fi
    payload mco-render machine-config-operator bootstrap \
        --root-ca=/assets/tls/root-ca.crt \
        --kube-ca=/assets/tls/kube-apiserver-complete-client-ca-bundle.crt \
        --config-file=/assets/manifests/cluster-config.yaml \
        --dest-dir=/assets/mco-bootstrap \
        --pull-secret=/assets/manifests/openshift-config-secret-pull-secret.yaml \
        --release-image="${image}" \
        --image-references=/assets/image-references \
        --payload-version="${version}" \
        "${cloud[@]}"
    serve_machine_configs
    start_platform_pods
    publish mco-bootstrap/manifests manifests
}

# The bootstrap machine-config server: its controller renders the pools from /etc/mcc, it serves them from /etc/mcs.
serve_machine_configs() {
    local controller="${MOORAGE_ROOT}/etc/mcc/bootstrap" server="${MOORAGE_ROOT}/etc/mcs"
    local certificates="${MOORAGE_ROOT}/etc/ssl/mcs"
    rm --recursive --force "${controller}"
    mkdir --parents "${server}/bootstrap"
    publish manifests "${controller}"
    publish mco-bootstrap/bootstrap/manifests "${controller}"
    if [[ "${MOORAGE_CONTROLLER_READS_REFERENCES}" == true ]]; then
        cp image-references "${controller}/image-references"
    fi
    write_file "${server}/kubeconfig" 0600 <auth/kubeconfig-kubelet
    write_file "${certificates}/tls.crt" <tls/machine-config-server.crt
    write_file "${certificates}/tls.key" 0600 <tls/machine-config-server.key
    start_static_pods mco-bootstrap/bootstrap/machineconfigoperator-bootstrap-pod.yaml
}

# Next to its own two folders, the operator makes one for the platform if that brings virtual IPs or names.
start_platform_pods() {
    local folder
    for folder in mco-bootstrap/*/; do
        case "$(basename "${folder}")" in
            bootstrap | manifests) continue ;;
        esac
        publish_any "${folder}static-pod-resources" "${KUBERNETES}/static-pod-resources"
        if [[ -d "${folder}manifests" ]]; then
            start_static_pods "${folder}manifests"/*
        fi
    done
}

# The credential operator renders nothing where its capability is off.
render_cloud_credential() {
    local image
    image=$(image_for cloud-credential-operator)
    payload cco-render cloud-credential-operator render \
        --dest-dir=/assets/cco-bootstrap \
        --manifests-dir=/assets/manifests \
        --cloud-credential-operator-image="${image}"
    publish_any cco-bootstrap/manifests manifests
    if [[ -f cco-bootstrap/bootstrap-manifests/cloud-credential-operator-pod.yaml ]]; then
        publish cco-bootstrap/bootstrap-manifests bootstrap-manifests
    fi
}
