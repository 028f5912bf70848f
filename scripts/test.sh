#!/usr/bin/env bash
#
# Runs every check of Plimsoll: formatting, lints, tests and documentation.
#
# usage: scripts/test.sh
#
# On Debian and Ubuntu it first installs what the checks need and the machine
# lacks (through sudo unless run as root):
#   - a C compiler, with which rustc links;
#   - the Vulkan loader and two software Vulkan devices, Mesa's lavapipe and the
#     SwiftShader that comes with Chromium, so that the conformance tests cover
#     the wgpu backend on machines without a GPU. Debian 12 takes Mesa from
#     bookworm-backports: its own Mesa 22 is several times slower;
#   - the data set Fashion-MNIST.
# On other systems it says what is missing, and goes on with what is there.
#
# It needs a Rust toolchain with rustfmt and clippy, changes no tracked file, and
# does the same whether or not the variable CI is set. The exit status is 0 if
# every step passed; the last line counts them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Tests must neither write snapshots nor behave otherwise where CI is set.
unset CI UPDATE_EXPECT
export INSTA_UPDATE=no
export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-auto}"
export RUST_BACKTRACE="${RUST_BACKTRACE:-1}"

passed=0
failed=0
failed_steps=()

heading() { printf '\n==> %s\n' "$*"; }

# step NAME COMMAND...: runs the command under a heading and counts the result.
step() {
    local name=$1 begin=$SECONDS status=0
    shift
    heading "$name"
    # -e does not hold inside: the functions below return their status themselves.
    "$@" || status=$?
    if ((status == 0)); then
        passed=$((passed + 1))
        printf -- '--- passed: %s (%d s)\n' "$name" $((SECONDS - begin))
    else
        failed=$((failed + 1))
        failed_steps+=("$name")
        printf -- '--- FAILED: %s (status %d, %d s)\n' "$name" "$status" $((SECONDS - begin))
    fi
}

# Prints the totals as the last line, and ends the script.
finish() {
    local name
    echo
    for name in ${failed_steps[@]+"${failed_steps[@]}"}; do
        echo "failed: $name"
    done
    echo "$passed passed, $failed failed"
    exit $((failed > 0))
}

# ---------------------------------------------------------------- the system

# The value of a field of /etc/os-release, or nothing.
os_release() {
    [[ -r /etc/os-release ]] || return 0
    # shellcheck disable=SC1091
    (. /etc/os-release && printf '%s' "${!1:-}")
}

os_id=$(os_release ID)
os_codename=$(os_release VERSION_CODENAME)
debian_like=no
if command -v apt-get >/dev/null && [[ " $os_id $(os_release ID_LIKE) " =~ \ (debian|ubuntu)\  ]]; then
    debian_like=yes
fi

# The first of the named files that exists, or nothing.
first_file() {
    local file
    for file in "$@"; do
        if [[ -f $file ]]; then
            printf '%s' "$file"
            return
        fi
    done
}

# This machine's own architecture first: another's driver cannot be loaded.
lavapipe_icd() {
    first_file /usr/share/vulkan/icd.d/lvp_icd."$(uname -m)".json \
        /usr/share/vulkan/icd.d/lvp_icd*.json /etc/vulkan/icd.d/lvp_icd*.json
}

swiftshader_icd() {
    first_file /usr/lib/chromium/vk_swiftshader_icd.json \
        /usr/lib/chromium-browser/vk_swiftshader_icd.json \
        /usr/lib64/chromium-browser/vk_swiftshader_icd.json \
        /snap/chromium/current/usr/lib/chromium-browser/vk_swiftshader_icd.json \
        /opt/google/chrome/vk_swiftshader_icd.json
}

has_vulkan_loader() {
    local folder
    for folder in /usr/lib /usr/lib64 /lib /usr/local/lib /usr/lib/"$(uname -m)"-linux-gnu; do
        [[ ! -e $folder/libvulkan.so.1 ]] || return 0
    done
    return 1
}

dataset_folder=/usr/share/datasets/fashion-mnist

# -------------------------------------------------------- packages of Debian

package_version() { dpkg-query -W -f '${db:Status-Status} ${Version}' "$1" 2>/dev/null || true; }

is_installed() { [[ $(package_version "$1") == installed\ * ]]; }

is_bookworm() { [[ $os_id == debian && $os_codename == bookworm ]]; }

# Whether Mesa lacks, or is the slow one of Debian 12.
needs_mesa() {
    is_installed mesa-vulkan-drivers || return 0
    local version
    version=$(package_version mesa-vulkan-drivers)
    is_bookworm && dpkg --compare-versions "${version#installed }" lt 25
}

as_root() {
    if ((EUID == 0)); then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        echo "not root, and sudo is not here: cannot run: $*" >&2
        return 1
    fi
}

apt_get() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -q "$@"; }

# The addresses, components first, of a suite in this machine's configuration.
suite_uris() {
    apt-get indextargets --format '$(COMPONENT) $(REPO_URI)' \
        'Created-By: Packages' "Codename: $1" | sort -u
}

# Adds bookworm-backports, from the mirror that serves bookworm, unless it is there.
ensure_backports() {
    local uri key=/usr/share/keyrings/debian-archive-keyring.gpg options=''
    if grep -qsE '^[^#]*bookworm-backports' \
        /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources}; then
        return 0
    fi
    uri=$(suite_uris bookworm | sed -n 's/^main //p' | head -n 1)
    if [[ -z $uri ]]; then
        echo "no mirror of bookworm in this machine's apt configuration" >&2
        return 1
    fi
    [[ ! -f $key ]] || options="[signed-by=$key] "
    echo "adding bookworm-backports to /etc/apt/sources.list.d"
    echo "deb ${options}${uri} bookworm-backports main" |
        as_root tee /etc/apt/sources.list.d/plimsoll-bookworm-backports.list >/dev/null &&
        apt_get update
}

# Installs what lacks. Each package for itself, so that one that cannot be had
# does not keep the others away.
install_packages() {
    local missing=() package status=0 chromium=chromium
    # Ubuntu has Chromium under this name, as a snap.
    [[ $os_id != ubuntu ]] || chromium=chromium-browser
    command -v cc >/dev/null || missing+=(gcc libc6-dev)
    is_installed libvulkan1 || missing+=(libvulkan1)
    ! needs_mesa || missing+=(mesa-vulkan-drivers)
    [[ -n $(swiftshader_icd) ]] || missing+=("$chromium")
    [[ -d $dataset_folder ]] || missing+=(dataset-fashion-mnist)
    if ((${#missing[@]} == 0)); then
        echo "nothing to install"
        return 0
    fi
    echo "to install: ${missing[*]}"
    apt_get update || echo "apt-get update failed; going on with the lists that are here" >&2
    for package in "${missing[@]}"; do
        if [[ $package == mesa-vulkan-drivers ]] && is_bookworm; then
            ensure_backports && apt_get install -y --no-install-recommends -t bookworm-backports "$package"
        else
            apt_get install -y --no-install-recommends "$package"
        fi || {
            echo "cannot install $package" >&2
            status=1
        }
    done
    return "$status"
}

# ----------------------------------------------------------------- the steps

check_tools() {
    local status=0
    cargo --version && cargo fmt --version && cargo clippy --version || status=1
    if ! command -v cc >/dev/null; then
        echo "no C compiler: install one that is called cc" >&2
        status=1
    fi
    return "$status"
}

# Says what there is, and fails where it could have been installed but is not.
check_drivers() {
    local all=yes
    missing() {
        echo "missing: $1"
        all=no
    }
    has_vulkan_loader || missing "the Vulkan loader, libvulkan.so.1 (tests on Vulkan devices are not covered)"
    if [[ -n $lavapipe ]]; then
        echo "lavapipe:    $lavapipe"
    else
        missing "lavapipe, Mesa's software Vulkan (its device is not covered)"
    fi
    if [[ -n $swiftshader ]]; then
        echo "SwiftShader: $swiftshader"
    else
        missing "SwiftShader, Chromium's software Vulkan (its device is not covered)"
    fi
    echo "VK_DRIVER_FILES=${VK_DRIVER_FILES-}"
    [[ $all == yes || $debian_like == no ]]
}

command -v cargo >/dev/null || PATH="$PATH:$HOME/.cargo/bin"

if [[ $debian_like == yes ]]; then
    step "packages" install_packages
else
    heading "packages"
    echo "not Debian or Ubuntu: installing nothing. The checks need a C compiler (cc), the Vulkan"
    echo "loader, Mesa's lavapipe and Chromium's SwiftShader. What is missing is not covered."
    [[ -d $dataset_folder ]] || echo "missing: $dataset_folder (loading the full Fashion-MNIST is not covered)"
fi

step "tools" check_tools

# Both software devices, and no other, in one process: the loader takes the list
# in this variable in place of all drivers of the system.
lavapipe=$(lavapipe_icd)
swiftshader=$(swiftshader_icd)
unset VK_ICD_FILENAMES VK_ADD_DRIVER_FILES VK_DRIVER_FILES
drivers=$lavapipe${lavapipe:+${swiftshader:+:}}$swiftshader
[[ -z $drivers ]] || export VK_DRIVER_FILES=$drivers
step "software Vulkan devices" check_drivers

# A lock file that is tracked must suffice, and stay as it is.
locked=()
if git ls-files --error-unmatch Cargo.lock >/dev/null 2>&1; then
    locked=(--locked)
fi

step "cargo fmt" cargo fmt --all --check
step "cargo clippy" cargo clippy ${locked[@]+"${locked[@]}"} --workspace --all-targets --all-features -- -D warnings
step "cargo test" cargo test ${locked[@]+"${locked[@]}"} --workspace --no-fail-fast
step "cargo doc" env RUSTDOCFLAGS="-D warnings" cargo doc ${locked[@]+"${locked[@]}"} --workspace --no-deps

finish
