# shellcheck shell=bash disable=SC2034,SC2153
# Shadow git tuned: no zlib, untracked cache, index v4 without checksum, parallel checkout, no fsync.
# shellcheck source=benches/compare.d/tools/git.sh
. "$PARTS/tools/git.sh"
NAME=gitfast
SETTINGS+=(core.compression=0 core.looseCompression=0 core.untrackedCache=true index.version=4 index.threads=2
  index.skipHash=true core.fsync=none checkout.workers=2 checkout.thresholdForParallelism=50)
