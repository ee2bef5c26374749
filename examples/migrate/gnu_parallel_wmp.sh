#!/bin/sh
# Count the words of each file, with two jobs at a time. More workers may run on other machines.
wmp worker --role wc --slots 2 -- wc -w & trap "kill $!" EXIT
wmp map --role wc --joblog log --retries 2 --halt soon,fail=1 "$@"
