#!/bin/sh
# `cellar serve` as other people's clients see it: curl, and OpenAI's client for Node.
#
#   OUT=build/<hash> tests/clients.sh
#
# The Node client is installed into the build folder the first time, the version and checksum in tests/node/ and no other;
# without node, npm or a registry that part is skipped, and says so. The last line counts.

set -u
: "${OUT:?the folder of the build}"
passed=0
failed=0
skipped=0

scratch=$(mktemp -d) || exit 1
server=
finish() {
    [ -z "$server" ] || kill "$server" 2>/dev/null
    rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM

# shellcheck disable=SC2086 # EXEC is a list of words
written=$(${EXEC-} "$OUT/cellar" run --no-echo -p 'Once upon a time' --temp 0 -n 24 -q 2>/dev/null)
# shellcheck disable=SC2086
${EXEC-} "$OUT/cellar" serve --port 0 --api-key door -q >"$scratch/said" 2>&1 &
server=$!
tries=0
until address=$(grep -o 'http://[0-9.:]*' "$scratch/said"); do
    tries=$((tries + 1))
    if [ $tries -gt 600 ] || ! kill -0 $server 2>/dev/null; then
        cat "$scratch/said"
        echo 'FAIL the server did not start'
        echo '0 passed, 1 failed, 0 skipped'
        exit 1
    fi
    sleep 0.1
done

# ---- curl ----

# ask NAME PATTERN PATH BODY [OPTION...]: does the reply, on one line, match the pattern?
ask() {
    name=$1 pattern=$2 path=$3 body=$4
    shift 4
    reply=$(curl -sS -m 60 "$@" -H 'Authorization: Bearer door' -H 'Content-Type: application/json' \
        "$address$path" -d "$body" 2>&1 | tr '\n' ' ')
    # shellcheck disable=SC2254 # it is a pattern
    case $reply in
    $pattern) passed=$((passed + 1)) ;;
    *)
        echo "FAIL curl, $name: $reply"
        failed=$((failed + 1))
        ;;
    esac
}

if command -v curl >/dev/null 2>&1; then
    said='"messages":[{"role":"user","content":"Hi"}],"temperature":0,"max_tokens":8'
    ask chat '*"object":"chat.completion"*"role":"assistant"*"finish_reason":"length"*"completion_tokens":8*' \
        /v1/chat/completions "{$said}"
    ask stream 'data: {*"delta":{"role":"assistant"*"usage":{"prompt_tokens"*data: \[DONE\]*' \
        /v1/chat/completions "{$said,\"stream\":true,\"stream_options\":{\"include_usage\":true}}" -N
    ask n '*"index":0*"index":1*"completion_tokens":16*' /v1/chat/completions "{$said,\"n\":2}"
    ask logprobs '*"logprobs":{"content":\[{*"top_logprobs":\[{*' /v1/chat/completions \
        "{$said,\"logprobs\":true,\"top_logprobs\":1}"
    ask stop '*"text":""*"finish_reason":"stop"*' /v1/completions \
        "{\"prompt\":\"Once upon a time\",\"temperature\":0,\"stop\":\"$(printf %.2s "$written" | tr -d '\n')\"}"
    ask 'a wrong field' '*"error":{*"param":"max_tokens"*400' /v1/completions '{"prompt":"a","max_tokens":"x"}' \
        -w '%{http_code}'
    ask 'a body that is announced' '*"tokens":\[*' /tokenize '{"content":"a dog"}' -H 'Expect: 100-continue'
else
    echo 'skip: there is no curl'
    skipped=$((skipped + 1))
fi

# ---- Node ----

# Is the client there, or can it be had? Prints why not.
get_client() {
    command -v node >/dev/null 2>&1 || { echo 'there is no node' && return 1; }
    node -e 'process.exit(parseInt(process.versions.node) >= 20 ? 0 : 1)' || { echo 'node is older than 20' && return 1; }
    mkdir -p "$OUT/node"
    if ! cmp -s tests/node/package-lock.json "$OUT/node/installed"; then
        command -v npm >/dev/null 2>&1 || { echo 'there is no npm' && return 1; }
        cp tests/node/package.json tests/node/package-lock.json "$OUT/node/"
        (cd "$OUT/node" && timeout 120 npm ci --no-audit --no-fund --ignore-scripts --fetch-retries=1 \
            --fetch-timeout=20000) >"$scratch/npm" 2>&1 || { echo 'npm has no registry' && return 1; }
        cp tests/node/package-lock.json "$OUT/node/installed"
    fi
    cp tests/node/openai.mjs "$OUT/node/"
}

if reason=$(get_client); then
    timeout 300 node "$OUT/node/openai.mjs" "$address" door "$written" >"$scratch/node" 2>&1
    counts=$(tail -n 1 "$scratch/node")
    case $counts in
    [0-9]*\ [0-9]*)
        passed=$((passed + ${counts% *})) failed=$((failed + ${counts#* }))
        sed '$d' "$scratch/node"
        ;;
    *)
        cat "$scratch/node"
        echo 'FAIL openai: it did not come to its end'
        failed=$((failed + 1))
        ;;
    esac
else
    echo "skip: the OpenAI client for Node: $reason"
    skipped=$((skipped + 1))
fi

kill -INT "$server"
wait "$server"
code=$?
server=
if [ $code -ne 0 ]; then
    cat "$scratch/said"
    echo "FAIL the server ended with $code"
    failed=$((failed + 1))
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
