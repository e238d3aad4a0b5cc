#!/usr/bin/env bash
# Rewrites constraints.txt from what pip resolves today; run it to move to newer releases, then `make check`.
set -euo pipefail
cd "$(dirname "$0")/.."
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

"${BIMETAL_PYTHON:-python3}" -m venv "$scratch/venv"
# vLLM's CPU build wants exactly this torch and a transformers in this range, so the two are chosen by hand.
"$scratch/venv/bin/pip" install --quiet "torch==2.13.0"
"$scratch/venv/bin/pip" install --quiet "torch==2.13.0" "transformers==5.19.0" \
  --editable ".[dev,gym,lora,data,gguf,plots,docs]"
{
  head -n 1 constraints.txt
  # A local label such as +cpu would tie the file to one kind of build.
  "$scratch/venv/bin/pip" freeze --exclude-editable | sed -E 's/\+[a-z0-9.]+$//'
} > "$scratch/constraints.txt"
mv "$scratch/constraints.txt" constraints.txt
