# mypy over umfpy as it is installed: with providers/ as umfpy.providers.
set -eu

tree=build/types
rm -rf "$tree"
mkdir -p "$tree/umfpy"
for entry in umfpy/*; do
    ln -s "$PWD/$entry" "$tree/umfpy/"
done
ln -s "$PWD/providers" "$tree/umfpy/providers"
config=$PWD/pyproject.toml
cache=$PWD/.mypy_cache
cd "$tree"
mypy --config-file "$config" --cache-dir "$cache" -p umfpy
