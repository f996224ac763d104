{{- define "trimodal.name" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- /* What never changes about a workload; of (list $ "server"). */ -}}
{{- define "trimodal.selector" -}}
app.kubernetes.io/name: trimodal
app.kubernetes.io/instance: {{ include "trimodal.name" (index . 0) }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "trimodal.labels" -}}
{{ include "trimodal.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
{{- end -}}

{{- /* The image of a tag; of (list $ "cpu"). */ -}}
{{- define "trimodal.image" -}}
{{- $image := (index . 0).Values.image -}}
{{ printf "%s:%s%s" $image.repository (index . 1) $image.tagSuffix }}
{{- end -}}

{{- /* No container has a right that it does not need. */ -}}
{{- define "trimodal.podSecurity" -}}
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
fsGroup: 1000
fsGroupChangePolicy: OnRootMismatch
seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "trimodal.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end -}}

{{- /* Resources with GPUs, whose request and limit must be one; of (list $ resources 1). */ -}}
{{- define "trimodal.resources" -}}
{{- $resources := deepCopy (index . 1) -}}
{{- if index . 2 -}}
{{- $gpu := dict (index . 0).Values.gpu.resource (index . 2 | toString) -}}
{{- $resources = mergeOverwrite $resources (dict "requests" $gpu "limits" (deepCopy $gpu)) -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end -}}

{{- /* How many servers the gateway looks for. */ -}}
{{- define "trimodal.known" -}}
{{- .Values.maxReplicas | default .Values.replicas | default 1 -}}
{{- end -}}

{{- /* What a build leaves behind when it is done, and what it is compared with; of (list $ profile build). */ -}}
{{- define "trimodal.buildHash" -}}
{{- $image := include "trimodal.image" (list (index . 0) (index . 1).buildTag) -}}
{{- printf "%s %s" $image (toJson (index . 2).command) | sha256sum | trunc 16 -}}
{{- end -}}

{{- define "trimodal.pullSecrets" -}}
{{- with .Values.image.pullSecrets -}}
imagePullSecrets:
{{- range . }}
  - { name: {{ . }} }
{{- end }}
{{- end -}}
{{- end -}}
