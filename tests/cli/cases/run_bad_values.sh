# Every wrong value is refused before a model is opened, with what was expected.
for wrong in '-n many' '-c 1' '-t 0' '--ubatch 0' '--temp nan' '--top-p 2' '--seed 0x10' '--on-full wait' \
    '--ctk q9_0' '--cpu fast' '-p a -f b' 'prompt' '-m'; do
    # shellcheck disable=SC2086 # split on purpose
    cellar run $wrong 2>&1 >/dev/null | head -n 1
done
