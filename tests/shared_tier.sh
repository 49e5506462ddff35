#!/bin/sh
# Several servers, one store: what one has read the others go on from, whatever becomes of server and store.
#
#   OUT=build/<hash> tests/shared_tier.sh [PART...]
#
# Parts: share trouble secure cluster balance (all of them). Servers and stores live in network namespaces of this test's own, joined by a bridge;
# without root or iproute2 they share the loopback address, and what needs a slow network is skipped. Needs redis-server, curl and
# (balance) haproxy, (secure) openssl; a part without its program is skipped. Every answer is compared with that of a
# server without a store. The last line counts.

set -u
: "${OUT:?the folder of the build}"
cellar=$(realpath "$OUT/cellar")
parts=${*:-share trouble secure cluster balance}
passed=0
failed=0
skipped=0
scratch=$(mktemp -d) || exit 1
id=sh$$
spaces=
pids=

clean() {
    # shellcheck disable=SC2086 # lists of words
    [ -z "$pids" ] || kill -9 $pids 2>/dev/null
    wait 2>/dev/null
    for space in $spaces; do ip netns del "$space" 2>/dev/null; done
    rm -rf "$scratch"
}
trap clean EXIT
trap 'exit 1' HUP INT TERM

check() { # NAME COMMAND...
    name=$1
    shift
    if "$@"; then
        echo "ok   $name"
        passed=$((passed + 1))
    else
        echo "FAIL $name"
        failed=$((failed + 1))
    fi
}
skip() {
    echo "skip: $1"
    skipped=$((skipped + 1))
}
finish() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
    exit
}
for program in redis-server curl; do
    command -v $program >/dev/null 2>&1 || { skip "there is no $program" && finish; }
done

# ---- places: a namespace each, or ports of the loopback address

names='a b c store'
has_spaces=
# All of them, or none: a container may have ip, and not be allowed to use it.
make_spaces() {
    ip netns add "$id-hub" || return 1
    spaces="$id-hub"
    ip -n "$id-hub" link set lo up && ip -n "$id-hub" link add br0 type bridge &&
        ip -n "$id-hub" addr add 10.77.0.1/24 dev br0 && ip -n "$id-hub" link set br0 up || return 1
    number=10
    for name in $names; do
        number=$((number + 1))
        ip netns add "$id-$name" || return 1
        spaces="$spaces $id-$name"
        ip -n "$id-$name" link set lo up &&
            ip -n "$id-$name" link add eth0 type veth peer name "to-$name" netns "$id-hub" &&
            ip -n "$id-$name" addr add "10.77.0.$number/24" dev eth0 &&
            ip -n "$id-$name" link set eth0 up &&
            ip -n "$id-hub" link set "to-$name" master br0 &&
            ip -n "$id-hub" link set "to-$name" up || return 1
    done
}
if [ "$(id -u)" -eq 0 ] && command -v ip >/dev/null 2>&1 && make_spaces 2>"$scratch/spaces"; then
    has_spaces=yes
else
    for space in $spaces; do ip netns del "$space" 2>/dev/null; done
    spaces=
    skip "no network namespaces here: everything on the loopback address"
fi

address() {
    if [ ! "$has_spaces" ]; then
        echo 127.0.0.1
        return
    fi
    case $1 in
    hub) echo 10.77.0.1 ;;
    a) echo 10.77.0.11 ;;
    b) echo 10.77.0.12 ;;
    c) echo 10.77.0.13 ;;
    store) echo 10.77.0.14 ;;
    esac
}
# inside NAME COMMAND...
inside() {
    place=$1
    shift
    if [ "$has_spaces" ]; then ip netns exec "$id-$place" "$@"; else "$@"; fi
}
base=$((20000 + $$ % 20000))
port_of() {
    case $1 in
    a) echo $((base + 1)) ;;
    b) echo $((base + 2)) ;;
    c) echo $((base + 3)) ;;
    alone) echo $((base + 4)) ;;
    store) echo $((base + 5)) ;;
    secure) echo $((base + 6)) ;;
    node1) echo $((base + 7)) ;;
    node2) echo $((base + 8)) ;;
    door) echo $((base + 9)) ;;
    relay) echo $((base + 10)) ;;
    esac
}

# begin NAME PLACE COMMAND...: in the background; its process is in pid_NAME.
begin() {
    name=$1
    place=$2
    shift 2
    if [ "$has_spaces" ]; then
        ip netns exec "$id-$place" "$@" >"$scratch/$name.log" 2>&1 &
    else
        "$@" >"$scratch/$name.log" 2>&1 &
    fi
    eval "pid_$name=$!"
    pids="$pids $!"
}
# end NAME SIGNAL: and wait for it.
end() {
    eval "its=\$pid_$1"
    kill "-$2" "$its" 2>/dev/null
    wait "$its" 2>/dev/null
}
# Until the command succeeds, but not for ever.
until_so() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || return 1
        sleep 0.05
    done
}

redis() { # NAME ARGUMENTS...: ask a store
    its=$1
    shift
    inside hub redis-cli -h "$(address store)" -p "$(port_of "$its")" "$@" 2>/dev/null
}
begin_store() { # NAME ARGUMENTS...
    its=$1
    shift
    mkdir -p "$scratch/$its"
    begin "$its" store redis-server --bind "$(address store)" --port "$(port_of "$its")" --save '' \
        --protected-mode no --dir "$scratch/$its" --loglevel warning "$@"
}
is_up() { [ "$(redis "$1" ping)" = PONG ]; }
count_keys() { redis "${1:-store}" dbsize; }
has_keys() { [ "$(count_keys "${2:-store}")" -ge "$1" ]; }

begin_server() { # NAME ARGUMENTS...
    its=$1
    shift
    case $its in alone) at=hub ;; *) at=$its ;; esac
    begin "$its" "$at" "$cellar" serve --host "$(address $at)" --port "$(port_of "$its")" --metrics \
        --temp 0 --threads 1 "$@"
}
is_serving() {
    case $1 in alone) at=hub ;; *) at=$1 ;; esac
    inside hub curl -s -f -o /dev/null --max-time 5 "http://$(address $at):$(port_of "$1")/health"
}

# ask NAME PROMPT [TOKENS]: the answer is in $scratch/answer; true: 200.
ask() {
    case $1 in alone | door) at=hub ;; *) at=$1 ;; esac
    code=$(inside hub curl -s -o "$scratch/answer" -w '%{http_code}' --max-time 60 \
        -d "{\"prompt\":\"$2\",\"n_predict\":${3:-16},\"temperature\":0,\"prompt_cache_key\":\"${4-}\"}" \
        "http://$(address $at):$(port_of "$1")/completion")
    [ "$code" = 200 ]
}
text() { sed 's/.*"content": *"\([^"]*\)".*/\1/' "$scratch/answer"; }
reused() { sed 's/.*"reused": *\([0-9]*\).*/\1/' "$scratch/answer"; }
asked() { sed 's/.*"tokens_evaluated": *\([0-9]*\).*/\1/' "$scratch/answer"; }
source_of() { sed 's/.*"source": *"\([a-z]*\)".*/\1/' "$scratch/answer"; }
speed() { sed 's/.*"predicted_per_second": *\([0-9.]*\).*/\1/' "$scratch/answer"; }
metric() { # NAME METRIC
    inside hub curl -s "http://$(address "$1"):$(port_of "$1")/metrics" | awk -v n="cellar:$2" '$1 == n { print $2 }'
}
is_at_least() { [ "$(metric "$1" "$2")" -ge "$3" ]; }

# right NAME PROMPT [TOKENS]: 200, and the same words as without a store.
right() {
    ask alone "$2" "${3-}" || return 1
    expected=$(text)
    ask "$1" "$2" "${3-}" && [ "$(text)" = "$expected" ]
}
# A prompt of some 200 tokens that nothing else begins like.
prompt() {
    printf '%s and a small dog' "$1"
    for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
        printf ' went to the park to play with a red ball, %s times.' "$i"
    done
}
long="--shared-wait 20000"

begin_server alone
# shellcheck disable=SC2086 # options are words
begin_servers() { # ADDRESS ARGUMENTS...
    url=$1
    shift
    for name in a b c; do begin_server $name --shared "$url" "$@" $long; done
    for name in a b c; do until_so is_serving $name; done
}
end_servers() {
    for name in a b c; do end $name KILL; done
}
begin_store store
until_so is_up store || { echo "FAIL redis-server does not start" && failed=1 && finish; }
plain="redis://$(address store):$(port_of store)"
until_so is_serving alone

# ---- what one has read another goes on from

if echo " $parts " | grep -q ' share '; then
    begin_servers "$plain"
    first=$(prompt 'Lily')
    check "a prompt is read at A" right a "$first"
    check "and goes to the store" until_so has_keys 3
    check "B answers the same" right b "$first"
    check "and has read nothing but the rest of a block ($(source_of), $(reused) tokens)" \
        sh -c "[ '$(source_of)' = shared ] && [ '$(reused)' -ge 128 ]"
    check "key names say nothing" sh -c "! echo '$(redis store --scan | tr '\n' ' ')' | tr ' ' '\n' |
        grep -v '^\$' | grep -qvE '^cellar:\{[0-9a-f]{16}\}:[0-9a-f]{64}\$'"
    # A is killed while it writes; its conversation goes on at C, from what A had released.
    ask a "$first" 16
    second="$first$(text | tr -cd 'A-Za-z ,.') Then $(prompt 'they') and"
    check "the second turn is answered at A" right a "$second"
    until_so has_keys 7
    inside hub curl -s -N -o /dev/null -d "{\"prompt\":\"$second and\",\"n_predict\":400,\"stream\":true,\"ignore_eos\":true}" \
        "http://$(address a):$(port_of a)/completion" &
    stream=$!
    sleep 0.1
    end a KILL
    wait $stream 2>/dev/null
    check "A is killed, C goes on" right c "$second and"
    check "with all whole blocks that A had released ($(reused) of $(asked) tokens)" \
        sh -c "[ '$(source_of)' = shared ] && [ $(($(asked) - $(reused))) -le 66 ]"
    end_servers
fi

# ---- trouble

if echo " $parts " | grep -q ' trouble '; then
    redis store flushall >/dev/null
    begin_servers "$plain"
    check "a prompt is read at A" right a "$(prompt 'Tom')" 60
    fast=$(speed)
    until_so has_keys 3
    end store KILL
    check "the store is gone: B answers" right b "$(prompt 'Tom')"
    check "A too" right a "$(prompt 'Anna')"
    begin_store store
    until_so is_up store
    check "the store is back, empty: what was waiting is written" until_so has_keys 3
    check "the breaker of A has closed" until_so is_at_least a shared_writes 1
    check "C takes it over" right c "$(prompt 'Anna')"
    check "from the store ($(reused) tokens)" sh -c "[ '$(source_of)' = shared ]"
    redis store --scan | while read -r key; do
        head -c 5000 /dev/urandom | inside hub redis-cli -h "$(address store)" -p "$(port_of store)" -x set "$key"
    done >/dev/null
    n=$(count_keys)
    end b KILL
    # shellcheck disable=SC2086
    begin_server b --shared "$plain" $long
    until_so is_serving b
    check "the store is full of garbage: B answers" right b "$(prompt 'Anna')"
    check "it has believed none of $n values" is_at_least b shared_damaged_total 1
    end b TERM
    # shellcheck disable=SC2086
    begin_server b --shared "$plain" $long
    until_so is_serving b
    check "it has written them anew: B, begun again, takes them over" right b "$(prompt 'Anna')"
    check "from the store ($(reused) tokens)" sh -c "[ '$(source_of)' = shared ]"
    # Half a second away, each way: by netem, or by a relay where the kernel has none.
    slow_url=
    if [ "$has_spaces" ] && inside store tc qdisc add dev eth0 root netem delay 500ms 2>/dev/null; then
        slow_url=$plain
    elif command -v python3 >/dev/null 2>&1; then
        begin relay store python3 tests/slow_relay.py "$(address store)" "$(port_of relay)" "$(address store)" "$(port_of store)" 500
        slow_url="redis://$(address store):$(port_of relay)"
    fi
    if [ "$slow_url" ]; then
        end c KILL
        begin_server c --shared "$slow_url" # waits as long as reading takes, no longer
        until_so is_serving c
        check "the store is half a second away: C answers" right c "$(prompt 'Anna')" 60
        slow=$(speed)
        check "and has read it itself" sh -c "[ '$(source_of)' = none ]"
        check "also the next" right c "$(prompt 'Ben')"
        inside store tc qdisc del dev eth0 root 2>/dev/null
        echo "     tokens per second: $fast, and $slow with a slow store"
    else
        skip "no netem and no python3: the store is never slow"
    fi
    end_servers
fi

# ---- TLS and passwords

if echo " $parts " | grep -q ' secure '; then
    if ! command -v openssl >/dev/null 2>&1; then
        skip "there is no openssl to make certificates with"
    else
        make_certificate() { # NAME SUBJECT-ALTERNATIVE
            openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "/CN=$1" \
                -addext "subjectAltName=$2" -keyout "$scratch/$1.key" -out "$scratch/$1.pem" 2>/dev/null
        }
        make_certificate right "IP:$(address store)"
        make_certificate other "IP:192.0.2.1"
        begin_store secure --port 0 --tls-port "$(port_of secure)" --tls-cert-file "$scratch/right.pem" \
            --tls-key-file "$scratch/right.key" --tls-ca-cert-file "$scratch/right.pem" --tls-auth-clients no \
            --user default off --user cellar on '>se%cret' '~*' '+@all'
        secure="rediss://cellar:se%25cret@$(address store):$(port_of secure)"
        # shellcheck disable=SC2086
        begin_server a --shared "$secure" --shared-ca "$scratch/right.pem" $long
        # shellcheck disable=SC2086
        begin_server b --shared "$secure" --shared-ca "$scratch/right.pem" $long
        # shellcheck disable=SC2086
        begin_server c --shared "$secure" --shared-ca "$scratch/other.pem" $long
        for name in a b c; do until_so is_serving $name; done
        check "over TLS, with a password: A" right a "$(prompt 'Sue')"
        check "A has written" until_so is_at_least a shared_written_total 3
        check "B takes it over" right b "$(prompt 'Sue')"
        check "from the store ($(reused) tokens)" sh -c "[ '$(source_of)' = shared ]"
        check "C does not trust it, and answers" right c "$(prompt 'Sue')"
        check "having read it itself" sh -c "[ '$(source_of)' != shared ]"
        check "and says why" grep -q 'certificate verify failed' "$scratch/c.log"
        check "no password in any log" sh -c "! grep -rq 'se%' '$scratch'/a.log '$scratch'/c.log"
        end_servers
        end secure KILL
    fi
fi

# ---- a cluster of two nodes

if echo " $parts " | grep -q ' cluster '; then
    begin_store node1 --cluster-enabled yes --cluster-port $((base + 17))
    begin_store node2 --cluster-enabled yes --cluster-port $((base + 18))
    until_so is_up node1 && until_so is_up node2
    redis node1 cluster addslotsrange 0 8191 >/dev/null
    redis node2 cluster addslotsrange 8192 16383 >/dev/null
    redis node1 cluster meet "$(address store)" "$(port_of node2)" $((base + 18)) >/dev/null
    is_whole() { redis node1 cluster info | grep -q cluster_state:ok && redis node2 cluster info | grep -q cluster_state:ok; }
    check "two nodes are a cluster" until_so is_whole
    # shellcheck disable=SC2086
    begin_server a --shared "redis://$(address store):$(port_of node1)" $long
    # shellcheck disable=SC2086
    begin_server b --shared "redis://$(address store):$(port_of node2)" $long
    until_so is_serving a && until_so is_serving b
    n=0
    while [ $n -lt 12 ] && ! { has_keys 3 node1 && has_keys 3 node2; }; do
        n=$((n + 1))
        ask a "$(prompt "Child number $n")" || break
        sleep 0.2
    done
    check "prompts of A lie at both ($n prompts)" sh -c "[ '$(count_keys node1)' -ge 3 ] && [ '$(count_keys node2)' -ge 3 ]"
    is_shared=yes
    for i in $(seq $n); do
        right b "$(prompt "Child number $i")" && [ "$(source_of)" = shared ] || is_shared=
    done
    check "B finds all of them, whoever it asks first" [ "$is_shared" ]
    end a KILL
    end b KILL
    end node1 KILL
    end node2 KILL
fi

# ---- behind a door

if echo " $parts " | grep -q ' balance '; then
    if ! command -v haproxy >/dev/null 2>&1; then
        skip "there is no haproxy"
    else
        redis store flushall >/dev/null
        begin_servers "$plain"
        sed -n '/^```haproxy$/,/^```$/p' docs/many-servers.md | grep -v '^```' |
            sed -e "s/bind :8080/bind $(address hub):$(port_of door)/" \
                -e "s/10\.0\.0\.1:8080/$(address a):$(port_of a)/" \
                -e "s/10\.0\.0\.2:8080/$(address b):$(port_of b)/" \
                -e "s/10\.0\.0\.3:8080/$(address c):$(port_of c)/" \
                -e "s|/run/haproxy/cellar.sock|$scratch/door.sock|" -e "s/inter 1s/inter 200ms/" >"$scratch/haproxy.cfg"
        begin door hub haproxy -f "$scratch/haproxy.cfg"
        until_so inside hub curl -s -f -o /dev/null "http://$(address hub):$(port_of door)/health"
        is_sticky=yes
        for key in k1 k2 k3 k4 k5 k6; do
            ask door "$(prompt "$key")" 4 $key || is_sticky=
            ask door "$(prompt "$key")" 4 $key && [ "$(source_of)" = live ] || is_sticky=
        done
        check "a conversation stays where it is" [ "$is_sticky" ]
        served() { metric "$1" shared_fetches_total; }
        check "conversations are shared out ($(served a) $(served b) $(served c))" \
            sh -c "[ $(served a) -gt 0 ] && [ $(served b) -gt 0 ] && [ $(served c) -gt 0 ]"
        # Taken out at the door: its conversations go on elsewhere, and come back.
        tell() {
            python3 -c 'import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall((sys.argv[2] + "\n").encode())
print(s.recv(4096).decode().strip())' "$scratch/door.sock" "$1"
        }
        ask_all() {
            for key in k1 k2 k3 k4 k5 k6; do ask door "$(prompt "$key")" 4 $key || return 1; done
        }
        if command -v python3 >/dev/null 2>&1; then
            n=$(metric a jobs_total)
            tell 'set server cellars/one state drain' >"$scratch/told"
            check "A is drained: all are answered" ask_all
            check "by the others" sh -c "[ '$(metric a jobs_total)' = '$n' ] && [ ! '$(cat "$scratch/told")' ]"
            tell 'set server cellars/one state ready' >/dev/null
            ask_all
            check "and comes back ($n requests before, $(metric a jobs_total) now)" sh -c "[ '$(metric a jobs_total)' -gt '$n' ]"
        else
            skip "no python3: nothing tells haproxy to drain"
        fi
        # A rolling restart, while somebody asks without a pause.
        (
            n=0
            while [ ! -e "$scratch/stop" ]; do
                n=$((n + 1))
                code=$(inside hub curl -s -o /dev/null -w '%{http_code}' --max-time 60 \
                    -d "{\"prompt\":\"$(prompt "k$((n % 6 + 1))")\",\"n_predict\":4,\"prompt_cache_key\":\"k$((n % 6 + 1))\"}" \
                    "http://$(address hub):$(port_of door)/completion")
                echo "$code"
            done >"$scratch/codes"
        ) &
        asking=$!
        for name in a b c; do
            end $name TERM
            sleep 0.5
            # shellcheck disable=SC2086
            begin_server $name --shared "$plain" $long
            until_so is_serving $name
            sleep 0.7
        done
        touch "$scratch/stop"
        wait $asking
        check "all are restarted, one after the other: $(sort "$scratch/codes" | uniq -c | awk "{print \$1 \" of \" \$2}" | tr "\n" " ")" \
            sh -c "! grep -qv 200 '$scratch/codes' && [ -s '$scratch/codes' ]"
        check "conversations of before come from the store" sh -c \
            "[ $(($(metric a shared_tokens_total) + $(metric b shared_tokens_total) + $(metric c shared_tokens_total))) -ge 384 ]"
        end_servers
        end door KILL
    fi
fi

finish
