# shellcheck shell=sh
# The common functions of up, down and rollback. They run with any POSIX shell.

# The name of the stack and of the ECR repository, and the beginning of the names of secrets.
name=my-agent
# shellcheck disable=SC2034 # up and down use it
created_by_up='Created by deploy/up' # the description of a secret
dry_run=''
script=deploy/${0##*/}
cd "$(dirname "$0")/.." || exit
exec 3>&1
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
trap 'exit 130' HUP INT TERM

# Print an error and exit.
fail() {
  printf '%s\n' "$script: $1" >&2
  exit 1
}

# Exit because a command failed. Its own message is above.
fail_command() {
  fail "\`$*\` failed. Correct the cause, then run $script again: it continues with this step."
}

# Run a command that changes something. With --dry-run, only print it.
run() {
  if [ -z "$dry_run" ]; then
    "$@" || fail_command "$1 $2 ${3-}"
    return
  fi
  printf '+' >&3
  for word; do
    case $word in
      *[!A-Za-z0-9_./:=@%+,-]* | '') printf " '%s'" "$word" >&3 ;;
      *) printf ' %s' "$word" >&3 ;;
    esac
  done
  echo >&3
}

# Read something in the account. $1 is a pattern of the error for a missing resource, or $never; the
# others are arguments of aws. Print its output; return 1 if the resource is missing.
never='a^'
read_account() {
  missing=$1
  shift
  if output=$(aws "$@" --output text 2>"$temporary/error"); then
    [ "$output" = None ] || printf '%s\n' "$output"
  elif grep -Eq "$missing" "$temporary/error"; then
    return 1
  else
    cat "$temporary/error" >&2
    fail_command "aws $1 $2"
  fi
}

# Return 0 if a resource exists, and 1 if it is missing. The arguments are those of read_account.
exists() {
  read_account "$@" >/dev/null
}

# Return 0 if the bucket of the zip files exists, and 1 if it is missing.
bucket_exists() {
  exists '\(404\)' s3api head-bucket --bucket "$bucket" --expected-bucket-owner "$account"
}

# Print a value of the stack by a JMESPath query; print nothing if the stack is missing.
read_stack() {
  read_account 'does not exist' cloudformation describe-stacks --stack-name "$name" \
    --query "Stacks[0].$1" || [ $? = 1 ]
}

# Print an output of the stack.
read_output() {
  read_stack "Outputs[?OutputKey=='$1'].OutputValue | [0]"
}

# Print a parameter of the stack.
read_parameter() {
  read_stack "Parameters[?ParameterKey=='$1'].ParameterValue | [0]"
}

# Check that these programs are installed.
check_programs() {
  for program; do
    command -v "$program" >/dev/null || fail "$program is not installed. Install it."
  done
}

# Find the account and the region.
check_account() {
  region=${AWS_REGION:-${AWS_DEFAULT_REGION:-$(aws configure get region || :)}}
  [ -n "$region" ] || fail 'No region is set. Type, for example: export AWS_REGION=us-east-1'
  export AWS_REGION="$region" AWS_DEFAULT_REGION="$region" AWS_PAGER=''
  account=$(aws sts get-caller-identity --query Account --output text) ||
    fail "The AWS CLI has no valid credentials. Run \`aws configure\` or \`aws sso login\`."
  aws bedrock-agentcore-control list-agent-runtimes --max-results 1 >/dev/null ||
    fail "Cannot use Amazon Bedrock AgentCore in $region. Update the AWS CLI, choose a region \
with AgentCore, or ask for the permission bedrock-agentcore:ListAgentRuntimes."
  regions=$(sed -n 's/^  region: "\([a-z0-9-]*\)".*/\1/p' collections/*.collection.md)
  for other in $regions; do
    [ "$other" = "$region" ] ||
      fail "A file in collections/ names the region $other, but you deploy in $region."
  done
  bucket=my-agent-$account-$region
  # shellcheck disable=SC2034 # up uses it
  registry=$account.dkr.ecr.$region.amazonaws.com
}

# Check that no other deployment changes the stack, and that it can be updated.
check_stack() {
  status=$(read_stack StackStatus)
  case $status in
    REVIEW_IN_PROGRESS) ;;
    *_IN_PROGRESS) fail "The stack $name is busy ($status). Run $script again later." ;;
    ROLLBACK_FAILED | DELETE_FAILED)
      fail "The stack $name is in the state $status. Run deploy/down, then $script." ;;
    UPDATE_ROLLBACK_FAILED)
      fail "The stack $name is in the state $status. Run \`aws cloudformation \
continue-update-rollback --stack-name $name\`, then $script." ;;
  esac
}

# Print a value of the events of the stack; print nothing if it is missing or cannot be read.
read_events() {
  (read_account "$never" cloudformation describe-stack-events --no-paginate \
    --stack-name "$name" --query "$1") 2>/dev/null || :
}

# Deploy the stack with a template and parameters.
deploy_stack() {
  template=$1
  shift
  if [ "$status" = ROLLBACK_COMPLETE ]; then
    # The next stack has no previous values, so pass these on. Later values override them.
    read_stack "Parameters[].[join('=', [ParameterKey, ParameterValue])]" >"$temporary/parameters"
    while IFS= read -r parameter; do
      set -- "$parameter" "$@"
    done <"$temporary/parameters"
    echo "Deleting the remains of a failed first deployment. These parameters are kept. If $script
fails before the next stack exists, pass them again:"
    # Without those of the code: as arguments, they would override the next code.
    grep -Ev '^(CodeBucket|CodeKey|Image)=' "$temporary/parameters" || :
    run aws cloudformation delete-stack --stack-name "$name"
    run aws cloudformation wait stack-delete-complete --stack-name "$name"
  fi
  echo "Deploying the stack $name"
  set -- cloudformation deploy --stack-name "$name" --template-file "$template" \
    --capabilities CAPABILITY_IAM --no-fail-on-empty-changeset --parameter-overrides "$@"
  if [ -n "$dry_run" ]; then
    run aws "$@"
    return
  fi
  last=$(read_events 'StackEvents[0].EventId')
  if ! aws "$@"; then
    failed="StackEvents[?ends_with(ResourceStatus, '_FAILED') && \
!contains(ResourceStatusReason, 'cancelled')]"
    # If this failure has no event, the events are those of earlier deployments.
    reason=$(read_events "StackEvents[0].EventId != '$last' && $failed.ResourceStatusReason | [0]")
    fail "CloudFormation did not deploy the stack. ${reason:-Its message is above.} \
Correct the cause, then run $script again."
  fi
}

# Wait until the endpoint DEFAULT serves the version of the stack.
wait_until_ready() {
  arn=$(read_output RuntimeArn)
  version=$(read_output RuntimeVersion)
  id=${arn##*/}
  if [ -n "$dry_run" ]; then
    arn=${arn:-ARN} # a first deployment determines it
    return
  fi
  echo "Waiting for version $version"
  tries=120
  state=''
  while [ "$state" != "READY $version" ]; do
    [ -z "$state" ] || sleep 5
    state=$(read_account "$never" bedrock-agentcore-control get-agent-runtime-endpoint \
      --agent-runtime-id "$id" --endpoint-name DEFAULT \
      --query "join(' ', [status, liveVersion || '-'])")
    case $state in
      *FAILED*) fail "AgentCore did not start version $version ($state). See \
\`aws bedrock-agentcore-control get-agent-runtime --agent-runtime-id $id\`." ;;
    esac
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] ||
      fail "Version $version is not ready after 10 minutes ($state). Run $script again."
  done
}

# Run a turn, and print where the agent is.
run_first_turn() {
  logs=/aws/bedrock-agentcore/runtimes/$id-DEFAULT
  path=$(echo "$arn" | sed 's/:/%3A/g; s|/|%2F|g')/invocations
  url="https://bedrock-agentcore.$region.amazonaws.com/runtimes/$path?qualifier=DEFAULT"
  session=first-turn-of-deployment-$(date +%Y%m%d%H%M%S)
  set -- aws bedrock-agentcore invoke-agent-runtime --agent-runtime-arn "$arn" \
    --runtime-session-id "$session" --content-type application/json --accept application/json \
    --runtime-user-id deploy \
    --payload fileb:///dev/stdin "$temporary/reply"
  if [ -n "$dry_run" ]; then
    run "$@"
  else
    echo '{"prompt": "Hello."}' | "$@" >"$temporary/status" ||
      fail "The agent did not answer. Its log: aws logs tail $logs --since 10m"
    printf 'The agent answered: %s\n' "$(cat "$temporary/reply")"
  fi
  [ -z "$dry_run" ] || return 0
  console="https://console.aws.amazon.com/cloudwatch/home?region=$region"
  cat <<END

  version    $version
  ARN        $arn
  URL        $url
  dashboard  $console#gen-ai-observability/agent-core
  logs       aws logs tail $logs --follow
END
}
