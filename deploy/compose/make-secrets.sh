#!/bin/sh
# Makes the tokens and the password of compose.yaml in secrets/, once; never overwrites.
set -eu
umask 077
cd "$(dirname "$0")"
if [ -e secrets ]; then
    echo "make-secrets: $(pwd)/secrets is there already; nothing was changed" >&2
    exit 1
fi
mkdir secrets
make_secret() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
admin="$(make_secret)" prometheus="$(make_secret)" grafana="$(make_secret)" agents="$(make_secret)"
# A line of the service's token file: token, scopes, hosts of which it may send (better: a prefix of
# your agents' names, hosts=gpu-*), name.
{
    echo "$admin admin operator"
    echo "$prometheus ingest,read hosts=* prometheus"
    echo "$grafana read grafana"
    echo "$agents ingest hosts=* agents"
} > secrets/tokens
printf '%s' "$prometheus" > secrets/prometheus.token
printf '%s' "$agents" > secrets/agents.token
printf '%s' "$admin" > secrets/admin.token
echo "FABRICSCOPE_TOKEN=$grafana" > secrets/grafana.env
make_secret > secrets/grafana.password
# The containers run as other users: they may read the files; no other user can enter the folder.
chmod 644 secrets/tokens secrets/prometheus.token secrets/grafana.password
echo "make-secrets: $(pwd)/secrets: your token is in admin.token, Grafana's password in grafana.password"
