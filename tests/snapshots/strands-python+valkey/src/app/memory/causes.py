"""What made a store fail, in words: of classes and codes, as the text of an error may quote."""

import errno
import re

LATE, MISSING = "no answer in time", "it does not exist"
REGION, CREDENTIALS = "no AWS region, set AWS_REGION", "no AWS credentials"
REFUSED, UNKNOWN, NO_WAY = "connection refused", "unknown host", "no way to the host"
UNREACHED = {REFUSED, UNKNOWN, NO_WAY}
UNSENT = UNREACHED | {REGION, CREDENTIALS}  # by which nothing can have been changed

# The first row counts that has a class or a code of the error, or of one that led to it.
CAUSES = {
    REGION: "NoRegionError",
    CREDENTIALS: "NoCredentialsError PartialCredentialsError CredentialRetrievalError "
    "ProfileNotFound SSOError CredentialsProviderError TokenProviderError",
    REFUSED: "ECONNREFUSED",
    UNKNOWN: "gaierror ENOTFOUND EAI_AGAIN EAI_FAIL",
    NO_WAY: "ENETUNREACH EHOSTUNREACH EADDRNOTAVAIL",
    "TLS failed": "SSLError",
    "login refused": "AuthenticationError WRONGPASS NOAUTH 401 InvalidAccessKeyId ExpiredToken "
    "SignatureDoesNotMatch InvalidClientTokenId UnrecognizedClientException "
    "ExpiredTokenException InvalidSignatureException",
    "the clock of this machine is wrong": "RequestTimeTooSkewed",
    "permission refused": "NoPermissionError NOPERM AccessDenied AccessDeniedException 403",
    MISSING: "NoSuchBucket ResourceNotFoundException",
    "it is in another region": "PermanentRedirect AuthorizationHeaderMalformed "
    "IllegalLocationConstraintException",
    "it is a read-only replica": "ReadOnlyError READONLY",
    "it is out of memory": "OutOfMemoryError OOM",
    "it cannot write to its disk": "MISCONF",
    "it is still loading its data": "BusyLoadingError LOADING",
    "its cluster is down": "ClusterDownError CLUSTERDOWN MasterDownError MASTERDOWN",
    "too many requests": "429 SlowDown ThrottlingException TooManyRequestsException",
    LATE: "ConnectTimeoutError ReadTimeoutError TimeoutError ETIMEDOUT UND_ERR_CONNECT_TIMEOUT",
    "the connection broke": "ConnectionError ReadError RemoteProtocolError IncompleteReadError "
    "HTTPClientError ECONNRESET EPIPE UND_ERR_SOCKET",
    "an address in the environment is not valid": "ValueError ERR_INVALID_URL",
}
ROWS = {words: set(codes.split()) for words, codes in CAUSES.items()}


def cause_of(error: BaseException | None, *codes: object) -> str:
    """Why it failed, by what the error is and by codes of a reply; '' for what has no row."""
    known = {str(code) for code in codes}
    while error is not None:
        known |= {kind.__name__ for kind in type(error).__mro__}
        if isinstance(error, OSError):  # several attempts have their numbers in the text only
            numbers = [error.errno, *map(int, re.findall(r"\[Errno (\d+)\]", str(error)))]
            known |= {errno.errorcode.get(number or 0, "") for number in numbers}
        error = error.__cause__ or error.__context__
    return next((words for words, row in ROWS.items() if row & known), "")


def told(what: str, why: str) -> str:
    """One line about a store, a bucket or a service; `why` is of `cause_of` or of the caller."""
    return f"{what} cannot be {'reached' if why in UNREACHED else 'used'}: {why}"
