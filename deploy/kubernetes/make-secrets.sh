#!/bin/sh
# Prints the secrets of deploy/kubernetes: tokens with scopes, and a certificate for the service. Once:
#   deploy/kubernetes/make-secrets.sh | kubectl apply -f -
# Nothing is kept here: what you need later is in the cluster (kubectl -n fabricscope get secret fabricscope).
set -eu
umask 077
days="${CERTIFICATE_DAYS:-825}"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
make_token() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
packed() { base64 < "$1" | tr -d '\n'; }
admin="$(make_token)" agents="$(make_token)" controller="$(make_token)" scheduler="$(make_token)"

# An authority for this one certificate; its key is thrown away.
cd "$folder"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days "$days" -subj "/CN=fabricscope" \
    -addext "keyUsage=critical,keyCertSign,cRLSign" -keyout ca.key -out ca.crt 2> openssl.log || { cat openssl.log >&2; exit 1; }
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=fabricscope.fabricscope.svc" \
    -keyout tls.key -out tls.csr 2> openssl.log || { cat openssl.log >&2; exit 1; }
cat > names <<NAMES
subjectAltName=DNS:fabricscope,DNS:fabricscope.fabricscope,DNS:fabricscope.fabricscope.svc,DNS:fabricscope.fabricscope.svc.cluster.local,DNS:localhost,IP:127.0.0.1
basicConstraints=critical,CA:false
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth
authorityKeyIdentifier=keyid
NAMES
openssl x509 -req -in tls.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days "$days" -extfile names -out tls.crt \
    2> openssl.log || { cat openssl.log >&2; exit 1; }

# A line of the service's token file: token, scopes, hosts of which it may send (better: a prefix of
# your nodes' names, hosts=gpu-*), name.
cat > tokens <<TOKENS
$admin admin operator
$agents ingest hosts=* agents
$controller operate controller
$scheduler read scheduler
TOKENS

# The namespaces too, since secrets need them; kubectl apply -k does not mind that they are there.
for namespace in fabricscope fabricscope-agents; do
    printf 'apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n---\n' "$namespace"
done
cat <<SECRET
apiVersion: v1
kind: Secret
metadata:
  name: fabricscope
  namespace: fabricscope
type: Opaque
data:
  tokens: $(packed tokens)
  tls.crt: $(packed tls.crt)
  tls.key: $(packed tls.key)
  ca.crt: $(packed ca.crt)
SECRET
for client in agent:fabricscope-agents:"$agents" controller:fabricscope:"$controller" scheduler:fabricscope:"$scheduler"; do
    rest="${client#*:}"
    printf '%s' "${rest#*:}" > token
    cat <<SECRET
---
apiVersion: v1
kind: Secret
metadata:
  name: fabricscope-${client%%:*}
  namespace: ${rest%%:*}
type: Opaque
data:
  token: $(packed token)
  ca.crt: $(packed ca.crt)
SECRET
done
