# The formula of a tap. packaging/release/assemble.sh fills in the words between @ signs.
# It builds from the sources, on macOS and on Linux. Its syntax is checked; it has not been run by brew.
class Quackd < Formula
  desc "Supervisor for coding-agent sessions"
  homepage "@URL@"
  url "@URL@/download/v@VERSION@/quackd-@VERSION@.tar.gz"
  sha256 "@SHA256:quackd-@VERSION@.tar.gz@"
  license any_of: ["MIT", "Apache-2.0"]

  depends_on "rust" => :build

  def install
    system "cargo", "install", *std_cargo_args(path: "crates/cli")
    generate_completions_from_executable(bin/"quack", "completions", shells: [:bash, :zsh, :fish])
    system bin/"quack", "man", man1
    doc.install "README.md", "CHANGELOG.md", "SECURITY.md", "docs"
  end

  def caveats
    <<~TEXT
      The daemon starts by itself when it is needed. To have it started at login:
        quack service install
      or, kept by Homebrew:
        brew services start quackd
      Not both: the second daemon would find the first one and end.

      On macOS nothing has been run. The program was linked for it on Linux.
    TEXT
  end

  # A clean end (`quack stop`) stays one; after anything else it is started again.
  service do
    run [opt_bin/"quack", "daemon"]
    keep_alive successful_exit: false
    throttle_interval 10
    process_type :interactive
    environment_variables PATH: std_service_path_env
    error_log_path var/"log/quackd.log"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/quack --version")
    state = testpath/"state"
    state.mkpath
    ENV["RUBBER_DUCK_APP_SUPPORT"] = state
    assert_match "is not running", shell_output("#{bin}/quack ps 2>&1", 3)
  end
end
